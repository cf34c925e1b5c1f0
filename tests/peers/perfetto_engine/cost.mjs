// What a piece of work costs this process: all its threads, and the most memory that it has ever had resident.
import fs from 'node:fs';

export function costOf(work) {
  const [before, begin] = [process.cpuUsage(), performance.now()];
  work();
  const [used, milliseconds] = [process.cpuUsage(before), performance.now() - begin];
  return { cpu_s: (used.user + used.system) / 1e6, wall_s: milliseconds / 1e3, peak_mb: mostMegabytes() };
}

// Not `maxRSS`, which would start from what the starting process had.
function mostMegabytes() {
  const kibibytes = fs.readFileSync('/proc/self/status', 'utf8').match(/^VmHWM:\s*(\d+)/m)[1];
  return (Number(kibibytes) * 1024) / 1e6;
}
