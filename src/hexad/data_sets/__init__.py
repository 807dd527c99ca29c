"""Where do recorded conversations come from? Files of rows, read to the message level."""
