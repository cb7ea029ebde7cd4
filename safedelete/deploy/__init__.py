"""Deployment files, rendered from the job file and ``safedelete.toml``.

Pure: the same jobs and the same settings give the same bytes, so that a pipeline can hold what is committed against
what would be rendered.
"""
