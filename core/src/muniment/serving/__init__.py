"""What every transport over a network needs, whatever protocol it speaks: addresses, bodies, incidents, signals, HTTP.

``http`` and ``sites``, which serves with it, need the extra ``muniment[http]``; the other modules need nothing.
"""
