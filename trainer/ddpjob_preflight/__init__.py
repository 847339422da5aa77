"""The preflight of a gang, in separate programs, because what they try with torch may hang or leave state behind."""
