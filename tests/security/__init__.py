"""What an attacker, or a careless value, could reach for: SQL, credentials, the page."""
