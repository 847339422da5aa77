"""The preflight of a gang, as programs of their own: what they try with torch may hang, or leave traces."""
