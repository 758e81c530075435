"""Images over shared memory: written where the subscriber reads them, without a copy. Both ends are in this program."""

import thalweg

SIZE = (1080, 1920, 3)

with thalweg.Node("camera") as camera, thalweg.Node("viewer") as viewer:
    publisher = camera.publisher("/image", bytes, carriers=["shm"])
    images = viewer.subscriber("/image", bytes, carriers=["shm"])
    assert publisher.wait_connected(1, 5) and images.wait_connected(1, 5)
    for number in range(1, 4):
        loan = publisher.loan(1080 * 1920 * 3)
        loan.array("uint8", SIZE)[:] = number
        loan.publish()
        sample = images.wait(5)
        assert sample is not None
        image = sample.array("uint8", SIZE)
        print(f"image {image[0, 0, 0]}: {image.nbytes} bytes after {sample.info.latency_us} us")
