"""Lines of text with their images or sound: reading, writing, generating."""
