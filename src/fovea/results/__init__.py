"""What a verb gives back, as files, pictures and pages."""
