"""Mutants written by hand: the rules of ``format("magic")`` and of its streams."""

from __future__ import annotations

from tests.mutants.handwork import Hand

SOURCE, STREAM, SAID = "spark/source.py", "spark/stream.py", "spark/source_options.py"
BATCHES, SINK = "spark/batches.py", "engines/sink.py"

FACES = (
    Hand(
        "magic: the job begins before the checks", SOURCE, "MagicSource.writer",
        (("files = planned(said, schema)\norder = order_of(said)",
          "order = order_of(said)\nbegun = order.start()\nfiles = planned(said, schema)"),),
        "Spark calls no abort when the planner raises: a job stays that nobody ends",
    ),
    Hand(
        "magic: the commit's process is nobody", SINK, "EngineSink.begin",
        (("job._hand_over()", "partial(pickle.loads, pickle.dumps(job))"),),
        "each save leaves a closed record at the destination",
        imports="import pickle\nfrom functools import partial",
    ),
    Hand(
        "magic: a record that is gone is an error", SINK, "EngineSink.failed",
        (("except JobNotFound:", "except KeyError:"),),
        "Spark's abort after a refused commit tells 'unknown' over what the commit has told",
    ),
    Hand(
        "magic: what is not answered has ended", SINK, "EngineSink.failed",
        (("attach(job.dest, job.id, s3=job._s3)", "raise JobNotFound('')"),),
        "I10: an abort that nobody answered is told as done",
    ),
    Hand(
        "magic: an abort of a committed job raises", SINK, "EngineSink.failed",
        (("decided.outcome != 'committed'", "True"),),
        "Spark tells the abort's error in place of the commit's, which says how to finish the job",
    ),
    Hand(
        "magic: tasks and commits give no signs of life", SINK, "EngineSink._living",
        (("job.keep_alive()", "lambda: None"),),
        "cleanup takes a job for dead whose tasks upload for two days",
    ),
    Hand(
        "magic: ignore raises", SOURCE, "MagicWriter.commit",
        (("not self.ignores", "True"),),
        "mode ignore fails where data came meanwhile",
    ),
    Hand(
        "magic: append may replace", SAID, "_mode",
        (("(mode in REPLACES) == overwrite", "True"),),
        "I7: .mode('append') deletes the table",
    ),
    Hand(
        "magic: secrets are options", SAID, "_read",
        (("name in SECRET_FIELDS or (name == 'endpoint_url' and '@' in text)", "False"),),
        "a secret stands in Spark's event log",
    ),
    Hand(
        "magic: an endpoint may hold a password", SAID, "_read",
        (("name == 'endpoint_url' and '@' in text", "False"),),
        "a secret stands in Spark's event log",
    ),
    Hand(
        "magic: a timestamp's partition is in UTC", SOURCE, "planned",
        (("_refuse_instants(said, schema)", "pass"),),
        "the rows of midnight are in another partition than with Spark",
    ),
    Hand(
        "stream: every writer starts a job", STREAM, "stream_writer",
        (("not is_planner", "False"),),
        "each commit leaves a running job",
    ),
    Hand(
        "stream: a pickled source plans", SOURCE, "MagicSource.__getstate__",
        (("{**self.__dict__, 'is_planner': False}", "dict(self.__dict__)"),),
        "each commit leaves a running job",
    ),
    Hand(
        "stream: an abort without messages aborts nothing", STREAM, "MagicStreamWriter.abort",
        (("abort_stream(self.said.path, self.said.checkpoint, s3=self.said.s3,"
          " options=self.said.options)", "pass"),),
        "the uploads of a batch whose tasks all failed stay open",
    ),
    Hand(
        "stream: earlier runs stay", BATCHES, "end_earlier_runs",
        (("looked in _LOOKED", "True"),),
        "the uploads of a killed driver stay open, and complete mode is refused for a day",
    ),
    Hand(
        "stream: earlier runs are looked for each time", BATCHES, "end_earlier_runs",
        (("_LOOKED.add(looked)", "pass"),),
        "each micro-batch lists the destination",
    ),
    Hand(
        "stream: earlier runs are looked for once in a process", BATCHES, "end_earlier_runs",
        (("(dest, checkpoint, run)", "(dest, checkpoint)"),),
        "what another driver left that ran the query in between stays open until a cleanup",
    ),
    Hand(
        "stream: the first task's query is any", STREAM, "MagicStreamWriter.commit",
        (("StreamBatch(sent[0].query, batchId)", "StreamBatch('any', batchId)"),),
        "two queries into one table count one ledger: rows are lost",
    ),
    Hand(
        "stream: a number of results is enough", STREAM, "MagicStreamWriter.commit",
        (("[message.text for message in sent]", "[message.text for message in sent[:1]]"),
         ("map(str, range(len(messages)))", "['0']")),
        "I2: rows of the other tasks are lost",
    ),
    Hand(
        "stream: a missing message is no task", STREAM, "MagicStreamWriter.commit",
        (("range(len(messages))", "range(len(sent))"),),
        "I2: rows of the last partition are lost, and the batch counts as published",
    ),
    Hand(
        "magic: a missing message is no task", SOURCE, "MagicWriter.commit",
        (("len(messages)", "len(sent)"),),
        "I2: rows of the last partition are lost",
    ),
    Hand(
        "magic: any time zone will do", SOURCE, "_refuse_instants",
        (("ZoneInfo(said.time_zone)", "pass"),),
        "each task fails, and Spark tries it four times",
    ),
)  # fmt: skip
