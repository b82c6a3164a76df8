"""`claimbench check`: one sentence, checked on one training step within a time budget.

question.py   the sentence and the workload become a block (baseline, A/A control, cell), a plan and a claim
schedule.py   from one short round, the pilot: how many steps a trial and how many rounds fit the budget
check.py      pilot, rounds, verdict
answer.py     the answer as data: verdict, what could be resolved, parity, memory, why
words.py      the answer as text and as JSON
"""
