"""The programs that are diagnosed. Each is started by its path, as a user's script is."""
