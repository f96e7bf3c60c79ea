"""Networks on Google Cloud, with firewall, NAT and peering."""
