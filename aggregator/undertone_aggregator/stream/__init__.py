"""Stream campaigns on the server: moments of what devices released, means with their noise covariance, smoothing."""
