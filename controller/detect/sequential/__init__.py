"""The sequential detector: every observation when it comes, thresholds from the contract's budget.

``plan`` has thresholds and settings; ``detector`` implements the protocol; ``advance`` is the compiled tick,
which uses ``accumulate`` (observations into evidence), ``alarms`` (which streams raise one) and ``peers``
(weight of a scrape relative to peers); ``evidence`` is the memory of one stream, for alarm and recovery;
``spread`` has the bets on spread; ``records`` are the records of the compiled tick.
"""
