// Writes a report to a file.
#include "fp8/probe/report.h"

#include "fp8/base/file.h"
#include "fp8/json/json.h"

namespace fp8::probe {

void save_report(const std::string& path, bool force, const json::Value& report) {
  AtomicFile target(path, force);
  File file = File::open_update(target.path());
  file.write_all(json::dump(report, 2) + "\n");
  file.close();
  target.commit();
}

}  // namespace fp8::probe
