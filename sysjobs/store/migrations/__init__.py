"""Numbered SQL files, NNNN_what.sql: each takes the schema from version NNNN - 1 to NNNN."""
