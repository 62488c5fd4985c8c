"""Choose new tokens for languages and say what they buy, before any model is touched."""
