"""The object side: listing, accounted delete, permission probe."""
