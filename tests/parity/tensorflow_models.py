"""The published models (docs/published.md) in TensorFlow's graph mode, as its users wrote them in 2016.

Each function takes a batch and returns the logits [batch]. Weights are created under fixed names.
"""
import tensorflow as tf

v1 = tf.compat.v1


def start_graph_mode():
    v1.disable_v2_behavior()
    v1.logging.set_verbosity(v1.logging.ERROR)


def dense(x, units, name, kernel, bias):
    with v1.variable_scope(name):
        weights = v1.get_variable("kernel", [x.shape[-1], units], initializer=kernel)
        return x @ weights + v1.get_variable("bias", [units], initializer=bias)


def mlp(x, units):
    """x [batch, features]. ReLU of `units`, weights from N(0, 0.1²), biases 0.1."""
    kernel, bias = v1.random_normal_initializer(stddev=0.1), v1.constant_initializer(0.1)
    hidden = tf.nn.relu(dense(x, units, "hidden", kernel, bias))
    return tf.squeeze(dense(hidden, 1, "output", kernel, bias), 1)


class BasicLstmCell:
    """tf.nn.rnn_cell.BasicLSTMCell with its defaults, which TensorFlow 2 has in Keras 2 only."""

    def __init__(self, features, units, name, forget_bias=1.0):
        self.state_size, self.output_size, self.forget_bias = (units, units), units, forget_bias
        with v1.variable_scope(name):
            self.kernel = v1.get_variable(
                "kernel", [features + units, 4 * units], initializer=v1.glorot_uniform_initializer()
            )
            self.bias = v1.get_variable("bias", [4 * units], initializer=v1.zeros_initializer())

    def zero_state(self, batch, dtype):
        return tuple(tf.zeros([batch, size], dtype) for size in self.state_size)

    def __call__(self, x, state, scope=None):
        c, h = state
        i, j, f, o = tf.split(tf.concat([x, h], 1) @ self.kernel + self.bias, 4, axis=1)
        c = c * tf.sigmoid(f + self.forget_bias) + tf.sigmoid(i) * tf.tanh(j)
        h = tf.tanh(c) * tf.sigmoid(o)
        return h, (c, h)


def blstm(x, units):
    """x [steps, batch, features]. Mean over time of both directions' outputs."""
    forward, backward = (BasicLstmCell(x.shape[2], units, name) for name in ("forward", "backward"))
    outputs, _ = v1.nn.bidirectional_dynamic_rnn(forward, backward, x, dtype=tf.float32, time_major=True)
    states = tf.reduce_mean(tf.concat(outputs, 2), 0)
    return tf.squeeze(dense(states, 1, "output", v1.glorot_uniform_initializer(), v1.zeros_initializer()), 1)


def sigmoid_cross_entropy(logits, labels):
    return tf.reduce_mean(tf.nn.sigmoid_cross_entropy_with_logits(labels=labels, logits=logits))
