"""The sequential detector: every observation when it comes, thresholds from the contract's budget.

``plan`` thresholds and settings; ``detector`` behind the protocol; ``advance`` the compiled tick, which
uses ``accumulate`` (observations into evidence), ``alarms`` (which streams raise one) and
``peers`` (what a scrape is worth beside others); ``evidence`` the memory of one stream, broken or recovered,
``spread`` its bets on spread; ``records`` what the compiled tick works on.
"""
