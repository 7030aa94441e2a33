import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintWriter;
import java.io.StringWriter;
import java.lang.management.ManagementFactory;
import java.net.URI;
import java.nio.ByteBuffer;
import java.util.HashMap;
import java.util.Map;
import java.util.Random;
import java.util.UUID;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.FSDataOutputStream;
import org.apache.hadoop.fs.FileSystem;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.fs.s3a.commit.magic.MagicS3GuardCommitter;
import org.apache.hadoop.mapreduce.JobID;
import org.apache.hadoop.mapreduce.JobStatus;
import org.apache.hadoop.mapreduce.TaskAttemptID;
import org.apache.hadoop.mapreduce.TaskID;
import org.apache.hadoop.mapreduce.TaskType;
import org.apache.hadoop.mapreduce.task.JobContextImpl;
import org.apache.hadoop.mapreduce.task.TaskAttemptContextImpl;

/**
 * Hadoop's S3A in a JVM that stays: it is measured when it is hot.
 *
 * A line of standard input is one run: `verb name=value …`, the values without blanks. Names with a
 * dot go into Hadoop's configuration. Each run prints one line of JSON. The JVM ends with its input.
 */
public class Magic {
  static final int PIECE = 1 << 20;

  final Map<String, String> given = new HashMap<>();
  final Configuration conf = new Configuration();

  public static void main(String[] args) throws Exception {
    BufferedReader in = new BufferedReader(new InputStreamReader(System.in));
    for (String line = in.readLine(); line != null; line = in.readLine()) {
      System.out.println(told(line));
    }
    System.exit(0);
  }

  static String told(String line) {
    try {
      return new Magic(line).run(line.split(" ")[0]);
    } catch (Exception | LinkageError error) {
      StringWriter trace = new StringWriter();
      error.printStackTrace(new PrintWriter(trace));
      String text = trace.toString().replaceAll("[\\\\\"\\p{Cntrl}]+", " ");
      return "{\"error\":\"" + text + "\"}";
    }
  }

  Magic(String line) {
    String[] words = line.split(" ");
    for (int n = 1; n < words.length; n++) {
      int at = words[n].indexOf('=');
      given.put(words[n].substring(0, at), words[n].substring(at + 1));
    }
    conf.set("fs.s3a.endpoint.region", "us-east-1");
    conf.set("fs.s3a.path.style.access", "true");
    conf.set("fs.s3a.access.key", "bench");
    conf.set("fs.s3a.secret.key", "bench");
    conf.set("fs.s3a.committer.name", "magic");
    conf.set("fs.s3a.impl.disable.cache", "true");
    given.forEach((name, value) -> { if (name.contains(".")) conf.set(name, value); });
  }

  int number(String name) { return Integer.parseInt(given.getOrDefault(name, "0")); }

  static double cpu() {
    var system = (com.sun.management.OperatingSystemMXBean)
        ManagementFactory.getOperatingSystemMXBean();
    return system.getProcessCpuTime() / 1e9;
  }

  interface Step { void run() throws Exception; }

  String run(String verb) throws Exception {
    double cpu = cpu();
    long began = System.nanoTime();
    try (FileSystem files = FileSystem.get(URI.create("s3a://bench/"), conf)) {
      Step step = switch (verb) {
        case "stream" -> stream(files);
        case "commit" -> commit();
        case "job" -> job(files);
        default -> throw new IllegalArgumentException(verb);
      };
      System.gc();
      cpu = cpu();
      began = System.nanoTime();
      step.run();
    }
    double seconds = (System.nanoTime() - began) / 1e9;
    return "{\"seconds\":" + seconds + ",\"cpu_seconds\":" + (cpu() - cpu) + "}";
  }

  /** A file of size= bytes, in new pieces of 1 MiB. */
  Step stream(FileSystem files) throws Exception {
    write(files, "warm-up.bin", PIECE);
    return () -> write(files, "measured.bin", Long.parseLong(given.get("size")));
  }

  static void write(FileSystem files, String name, long size) throws Exception {
    byte[] tail = new byte[PIECE];
    new Random(7).nextBytes(tail);
    try (FSDataOutputStream out = files.create(new Path("s3a://bench/" + name))) {
      for (long n = 0; n * PIECE < size; n++) {
        byte[] piece = tail.clone();
        ByteBuffer.wrap(piece).putLong(n);
        out.write(piece, 0, (int) Math.min(PIECE, size - n * PIECE));
      }
    }
  }

  TaskAttemptContextImpl attempt(JobID id, int task) {
    return new TaskAttemptContextImpl(conf, new TaskAttemptID(new TaskID(id, TaskType.MAP, task), 0));
  }

  /** Commits the job uuid= below dest=, whose pendingsets are there. */
  Step commit() throws Exception {
    conf.set("fs.s3a.committer.uuid", given.get("uuid"));
    JobID id = new JobID("202601010000", 1);
    var committer = new MagicS3GuardCommitter(new Path(given.get("dest")), attempt(id, 0));
    return () -> committer.commitJob(new JobContextImpl(conf, id));
  }

  /** A whole job of tasks= tasks, one after the other, with files= files of size= bytes each. */
  Step job(FileSystem files) throws Exception {
    conf.set("fs.s3a.committer.uuid", UUID.randomUUID().toString());
    Path dest = new Path(given.get("dest"));
    JobID id = new JobID("202601010000", 1);
    byte[] content = new byte[number("size")];
    new Random(7).nextBytes(content);
    return () -> {
      var committer = new MagicS3GuardCommitter(dest, attempt(id, 0));
      committer.setupJob(new JobContextImpl(conf, id));
      for (int task = 0; task < number("tasks"); task++) {
        var context = attempt(id, task);
        var own = new MagicS3GuardCommitter(dest, context);
        own.setupTask(context);
        for (int n = 0; n < number("files"); n++) {
          try (var out = files.create(new Path(own.getWorkPath(), "part-" + task + "-" + n))) {
            out.write(content);
          }
        }
        own.commitTask(context);
      }
      committer.commitJob(new JobContextImpl(conf, id));
    };
  }
}
