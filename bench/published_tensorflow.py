"""The published experiments in TensorFlow's graph mode: published_tensorflow.py mlp|blstm feed_dict|FIFOQueue.

The batch is made by TensorFlow's random_normal. feed_dict: it is fetched and fed back in each step. FIFOQueue: a
QueueRunner with one thread enqueues it. Prints a JSON object (published_experiments.py).
"""
import os

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
from published_experiments import EXPERIMENTS, Row, parse_arguments  # noqa: E402

import tensorflow as tf  # noqa: E402
import tensorflow_models as models  # noqa: E402
from tensorflow_models import v1  # noqa: E402


def make_batch(experiment):
    """Sequences have the time in front, which TensorFlow's loop prefers."""
    if len(experiment.shape) == 1:
        x = tf.random.normal([experiment.batch, *experiment.shape])
        return x, tf.cast(tf.reduce_sum(x, 1) > 0, tf.float32)
    time, features = experiment.shape
    x = tf.random.normal([time, experiment.batch, features])
    return x, tf.cast(tf.reduce_sum(x, [0, 2]) > 0, tf.float32)


def main():
    args = parse_arguments(__doc__, ["feed_dict", "FIFOQueue"])
    models.start_graph_mode()
    v1.set_random_seed(1)
    experiment = EXPERIMENTS[args.experiment]
    drawn = make_batch(experiment)
    if args.mode == "FIFOQueue":
        queue = v1.FIFOQueue(experiment.capacity, [tf.float32, tf.float32], [tensor.shape for tensor in drawn])
        v1.train.add_queue_runner(v1.train.QueueRunner(queue, [queue.enqueue(drawn)]))
        batch = queue.dequeue()
        # The evaluation feeds its own batches.
        x, y = (v1.placeholder_with_default(tensor, tensor.shape) for tensor in batch)
    else:
        x, y = (v1.placeholder(tf.float32, tensor.shape) for tensor in drawn)
    logits = getattr(models, args.experiment)(x, experiment.units)
    train = v1.train.AdamOptimizer(experiment.lr).minimize(models.sigmoid_cross_entropy(logits, y))
    correct = tf.reduce_mean(tf.cast(tf.equal(logits > 0, y > 0.5), tf.float32))
    config = v1.ConfigProto(intra_op_parallelism_threads=args.threads, inter_op_parallelism_threads=args.threads)

    row = Row(f"TensorFlow, {args.mode}", args)
    with v1.Session(config=config) as session:
        session.run(v1.global_variables_initializer())

        def accuracy():
            count = experiment.evaluation_batches
            return sum(float(session.run(correct, dict(zip((x, y), session.run(drawn))))) for _ in range(count)) / count

        row.evaluate("before", accuracy)
        coordinator = v1.train.Coordinator()
        threads = v1.train.start_queue_runners(session, coordinator) if args.mode == "FIFOQueue" else []
        if args.mode == "feed_dict":
            row.run(lambda: session.run(drawn), lambda values: session.run(train, dict(zip((x, y), values))))
        elif args.simulated:
            # Without a fetch, as in a training step: the batch stays in the graph.
            row.run(lambda: session.run(batch[0].op), None)
        else:
            row.run(None, lambda _: session.run(train))
        coordinator.request_stop()
        if threads:
            session.run(queue.close(cancel_pending_enqueues=True))
            coordinator.join(threads)
        row.evaluate("after", accuracy)
    row.print()


if __name__ == "__main__":
    main()
