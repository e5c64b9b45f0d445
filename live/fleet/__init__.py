"""vLLM servers of this machine: started, supervised, known by state file, ended without orphans."""
