"""Nebius: platforms and presets, regions, InfiniBand fabrics, disk types, versions of Soperator."""
