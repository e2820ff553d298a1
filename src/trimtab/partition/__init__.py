"""How do I split this model over these devices?"""
