"""Who calls over a network: tokens of OpenID providers, and API tokens of Muniment's own.

``verifier`` is the authenticator that every transport gets; ``settings`` is what the configuration says of it. How a
proved identity is spelled is ``claims``'s, what scopes allow ``scopes``'s. ``issuers`` and ``keys`` need the extra
``muniment[auth]``.
"""
