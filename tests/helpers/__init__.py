"""What several tests share: tiny models, plans and texts."""
