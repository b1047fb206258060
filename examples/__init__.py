"""Programs that use Quire as a user would. Each has a README of its own, and a test."""
