"""What arrives: taken in, judged, counted and kept."""
