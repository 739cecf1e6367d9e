package plinth.keeper;

import static org.junit.platform.engine.discovery.DiscoverySelectors.selectClass;

import java.io.BufferedReader;
import java.io.IOException;
import java.lang.management.ManagementFactory;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import javax.management.JMException;
import javax.management.ObjectName;
import org.junit.platform.engine.FilterResult;
import org.junit.platform.engine.TestExecutionResult;
import org.junit.platform.engine.support.descriptor.MethodSource;
import org.junit.platform.launcher.LauncherDiscoveryRequest;
import org.junit.platform.launcher.PostDiscoveryFilter;
import org.junit.platform.launcher.TestExecutionListener;
import org.junit.platform.launcher.TestIdentifier;
import org.junit.platform.launcher.core.LauncherDiscoveryRequestBuilder;
import org.junit.platform.launcher.core.LauncherFactory;

/**
 * Run CLASSES LEFT-OUT … - runs the tests of the classes in a list, but for those that other lists leave out.
 *
 * <p>With -Dplinth.apart, each class has a process of its own: some leave settings or servers behind that others stumble over.
 *
 * <p>A line of a list is a class, or a class, "." and a method; after two spaces, a reason. A test that skips itself has
 * failed. The last line is "N passed, N failed".
 */
public final class Run implements TestExecutionListener {
    private final Map<String, Long> began = new HashMap<>();
    private final Set<String> unused = new HashSet<>();
    private int passed;
    private int failed;

    public static void main(String[] arguments) throws Exception {
        Run run = new Run();
        if (Boolean.getBoolean("plinth.apart")) {
            run.apart(arguments);
        } else {
            run.all(arguments);
        }
        System.out.println(run.passed + " passed, " + run.failed + " failed");
        // Threads that tests leave behind would hold the process.
        Runtime.getRuntime().halt(run.failed == 0 && run.passed > 0 ? 0 : 1);
    }

    /** Starts this program again for each class, and adds up what the last lines say. */
    private void apart(String[] arguments) throws IOException, InterruptedException {
        Set<String> holders = new HashSet<>(listed(arguments[0]));
        Path one = Files.createTempFile("class", "");
        Path some = Files.createTempFile("left-out", "");
        for (int index = 1; index < arguments.length; index++) {
            for (String name : listed(arguments[index])) {
                if (!holders.contains(name) && !holders.contains(name.substring(0, name.lastIndexOf('.')))) {
                    System.out.println("no class of " + name + " is listed");
                    failed++;
                }
            }
        }
        for (String holder : listed(arguments[0])) {
            Files.writeString(one, holder);
            List<String> out = new ArrayList<>();
            for (int index = 1; index < arguments.length; index++) {
                out.addAll(listed(arguments[index]));
            }
            if (out.contains(holder)) {
                continue;
            }
            out.removeIf(name -> !name.startsWith(holder + "."));
            Files.write(some, out);
            List<String> command = new ArrayList<>(List.of(ProcessHandle.current().info().command().get()));
            command.addAll(ManagementFactory.getRuntimeMXBean().getInputArguments());
            command.addAll(List.of("-Dplinth.apart=false", "-classpath", System.getProperty("java.class.path")));
            command.addAll(List.of(Run.class.getName(), one.toString(), some.toString()));
            count(new ProcessBuilder(command).redirectErrorStream(true).start(), holder);
        }
    }

    private void count(Process process, String holder) throws IOException, InterruptedException {
        String last = "";
        try (BufferedReader said = process.inputReader()) {
            for (String line = said.readLine(); line != null; line = said.readLine()) {
                if (!last.isEmpty()) {
                    System.out.println(last);
                }
                last = line;
            }
        }
        Matcher counted = Pattern.compile("(\\d+) passed, (\\d+) failed").matcher(last);
        if (counted.matches()) {
            passed += Integer.parseInt(counted.group(1));
            failed += Integer.parseInt(counted.group(2));
        } else {
            System.out.println(last);
        }
        if (process.waitFor() != 0 && (!counted.matches() || counted.group(2).equals("0"))) {
            System.out.println(holder + " ran no test, or ended badly");
            failed++;
        }
    }

    private static List<String> listed(String file) throws IOException {
        List<String> names = new ArrayList<>();
        for (String line : Files.readAllLines(Path.of(file))) {
            if (!line.isEmpty() && !line.startsWith("#")) {
                names.add(line.split("  ")[0]);
            }
        }
        return names;
    }

    private void all(String[] arguments) throws Exception {
        Set<String> out = new HashSet<>();
        for (int index = 1; index < arguments.length; index++) {
            out.addAll(listed(arguments[index]));
        }
        unused.addAll(out);
        LauncherDiscoveryRequestBuilder request = LauncherDiscoveryRequestBuilder.request()
                .configurationParameter("junit.jupiter.execution.timeout.default", "180 s")
                .filters((PostDiscoveryFilter) test -> {
                    if (!(test.getSource().orElse(null) instanceof MethodSource)) {
                        return FilterResult.included("it holds tests");
                    }
                    // A method of a common parent is a test of each child.
                    String holder = holder(test.getUniqueId().toString());
                    String name = holder + "." + ((MethodSource) test.getSource().get()).getMethodName();
                    unused.remove(name);
                    unused.remove(holder);
                    return FilterResult.includedIf(!out.contains(name) && !out.contains(holder));
                });
        for (String name : listed(arguments[0])) {
            request.selectors(selectClass(Class.forName(name)));
        }
        LauncherDiscoveryRequest built = request.build();
        LauncherFactory.create().execute(built, this);
        for (String name : unused) {
            System.out.println("no test is called " + name);
            failed++;
        }
    }

    private static String holder(String id) {
        String from = id.substring(id.indexOf("[class:") + 7);
        return from.substring(0, from.indexOf(']'));
    }

    @Override
    public void executionStarted(TestIdentifier test) {
        began.put(test.getUniqueId(), System.nanoTime());
    }

    @Override
    public void executionSkipped(TestIdentifier test, String reason) {
        say(test, "skipped: " + reason);
        failed++;
    }

    @Override
    public void executionFinished(TestIdentifier test, TestExecutionResult result) {
        boolean good = result.getStatus() == TestExecutionResult.Status.SUCCESSFUL;
        if (!test.isTest() && good) {
            return;
        }
        if (good) {
            passed++;
            say(test, "passed");
            return;
        }
        failed++;
        say(test, result.getStatus() == TestExecutionResult.Status.ABORTED ? "skipped itself" : "FAILED");
        result.getThrowable().ifPresent(trouble -> {
            System.out.println("    " + trouble);
            for (StackTraceElement line : trouble.getStackTrace()) {
                if (line.getClassName().startsWith("org.apache.")) {
                    System.out.println("        " + line);
                }
            }
            System.out.println("    beans: " + beans());
        });
    }

    /** What servers and sessions show now, of this test or of one before. */
    private static String beans() {
        try {
            ObjectName all = new ObjectName("org.apache.ZooKeeperService:*");
            return ManagementFactory.getPlatformMBeanServer().queryNames(all, null).toString();
        } catch (JMException trouble) {
            return trouble.toString();
        }
    }

    private void say(TestIdentifier test, String what) {
        long took = System.nanoTime() - began.getOrDefault(test.getUniqueId(), System.nanoTime());
        String name = test.getDisplayName();
        if (test.getSource().orElse(null) instanceof MethodSource) {
            String method = ((MethodSource) test.getSource().get()).getMethodName();
            // One of several runs of a method has a name of its own.
            name = holder(test.getUniqueId()) + "." + method + (name.startsWith(method) ? "" : " " + name);
        }
        System.out.printf("%6.1f s %s %s%n", took / 1e9, name, what);
        System.out.flush();
    }
}
