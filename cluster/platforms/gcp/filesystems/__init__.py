"""File systems on Google Cloud: mounts, EXAScaler servers, sizes and bandwidth."""
