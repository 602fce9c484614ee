"""What a local cloud shows of itself: its activity, the status document, the live stream and the console page."""
