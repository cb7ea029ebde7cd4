"""What runs on AWS against what the repository says. Reads only.

``read`` asks AWS, behind a small port; ``compare`` is pure; ``watch`` waits for a deploy to arrive.
"""
