"""Autotuning: schedules selected by measurement, and stored for each problem and machine.

The owner of a schedule describes a *problem* by its printed line and lists *candidates* as data, the default first
(`problem`). A *clock* times the candidates in turn (`clock`), the *store* keeps the choice for a problem on a machine
(`store`), and the *tuner* combines them (`tuner`). A target decides when it tunes, interprets the parameters of candidates,
and runs its own code; nothing here refers to a kind of target. Nothing of this package is imported unless tuning is enabled.
"""
