"""What runs on workers: searches by ask and tell, the loop that divides them into tasks, and where tasks run."""
