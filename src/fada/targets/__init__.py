"""How often each character is used in a domain: estimated from text, edited, compared, stored."""
