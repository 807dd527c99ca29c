"""What should a task start with? Six answers in; a first method, its price and its doubts out."""
