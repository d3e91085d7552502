"""The engines that benchmarks/training.py compares, each in its own process.

A module here is one engine. Its class `Engine(path, threads, *options)`, with the folder of a
`task.Task`, has

    version                name and version of the engine
    parameters             number of weights
    train(count)           takes a training step on each of the first `count` batches (None: all),
                           and returns the mean loss
    multiply(size, count)  computes this number of products of two matrices (size, size), one after
                           the other
    product_size           the size at which products are fastest on this device
    device_megabytes()     peak memory of the accelerator; None without one

`torch_steps` needs only numpy and PyTorch, not this project. The others need Keras and this
project.
"""
