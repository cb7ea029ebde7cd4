"""The row side: surveys, key paging, held deletes, permissions, and what differs between databases."""
