"""The engines that benchmarks/training.py compares, each in a process of its own.

A module here is one engine. Its class `Engine(path, threads, *options)`, with the folder of a `task.Task`, has

    version                what runs, in words
    parameters             how many weights there are
    train(count)           one step on each of the first `count` batches (None: all); the mean loss, once all is done
    multiply(size, count)  so many products of two matrices (size, size), one after the other; returns when all are done
    product_size           the size at which products are at their fastest on this device
    device_megabytes()     peak memory of the accelerator; None without one

`torch_steps` needs numpy and PyTorch, and nothing of this project; the others need Keras and this project.
"""
