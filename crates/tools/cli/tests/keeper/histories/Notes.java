package plinth.keeper.histories;

import java.io.BufferedWriter;
import java.io.IOException;
import java.io.UncheckedIOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.concurrent.atomic.AtomicLong;

/** The file of the history, and one clock for all who write to it. */
final class Notes {
    private final BufferedWriter file;
    private final long start = System.nanoTime();
    private final AtomicLong numbers = new AtomicLong();
    final AtomicLong answers = new AtomicLong();
    final AtomicLong losses = new AtomicLong();

    Notes(Path path) throws IOException {
        file = Files.newBufferedWriter(path);
    }

    /** Microseconds. What begins after something else has ended has a later time. */
    long now() {
        return (System.nanoTime() - start) / 1000;
    }

    long number() {
        return numbers.incrementAndGet();
    }

    void answered(int rc) {
        (rc == 0 ? answers : losses).incrementAndGet();
    }

    synchronized void line(String line) {
        try {
            file.write(line);
            file.write('\n');
        } catch (IOException failure) {
            throw new UncheckedIOException(failure);
        }
    }

    synchronized void close() throws IOException {
        file.close();
    }
}
