"""The processes of `trimtab up`: the HTTP server, the scheduler and the writer, and their supervision."""
