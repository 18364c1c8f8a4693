"""The laws that delivery instances are drawn by."""
