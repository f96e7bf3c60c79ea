"""Jobs of MLPerf's training benchmarks: data and code are prepared once, then a run is one job."""
