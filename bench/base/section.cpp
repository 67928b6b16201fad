#include "bench/base/section.h"

#include "bench/base/text.h"
#include "model/error.h"

namespace stepladder {

std::string Section::legend(bool wide) const {
  std::vector<std::string> lines;
  for (const Table& table : tables)
    for (const Table::Column& column : table.shown(wide)) {
      const std::string line = cat(column.header(), ": ", column.meaning, ".");
      if (!column.meaning.empty()) add_once(lines, line);
    }
  return join(lines, " ");
}

std::string Section::terminal(bool wide) const {
  std::string text = heading.empty() ? "" : heading + "\n";
  for (const std::string& sentence : sentences) text += folded(sentence) + "\n";
  for (const Table& table : tables)
    text += cat("\n", table.heading(), table.heading().empty() ? "" : "\n\n", table.terminal(wide));
  const std::string columns = legend(wide);
  if (!columns.empty() || !notes.empty()) text += "\n";
  if (!columns.empty()) text += folded(columns) + "\n";
  for (const Note& note : notes) text += folded(note.text) + "\n";
  return text;
}

std::string Section::markdown(int level) const {
  const auto headed = [](int of_level, const std::string& of) {
    return of.empty() ? ""
                      : cat(std::string(static_cast<size_t>(of_level), '#'), " ", markdown_text(of), "\n\n");
  };
  std::string text = headed(level, heading);
  for (const std::string& sentence : sentences) text += markdown_text(sentence) + "\n\n";
  for (const Table& table : tables) text += headed(level + 1, table.heading()) + table.markdown() + "\n";
  if (const std::string columns = legend(); !columns.empty()) text += cat("- ", markdown_text(columns), "\n");
  for (const Note& note : notes) text += cat("- ", markdown_text(note.text), "\n");
  return text;
}

nlohmann::ordered_json Section::json() const {
  using Json = nlohmann::ordered_json;
  Json json = {{"heading", heading}, {"sentences", sentences}, {"legend", legend()}};
  for (const char* key : {"facts", "tables", "notes"}) json[key] = Json::array();
  for (const Fact& fact : facts)
    json["facts"].push_back({{"title", fact.title}, {"value", fact.value}, {"more", fact.more}});
  for (const Table& table : tables) json["tables"].push_back(table.json());
  for (const Note& note : notes) json["notes"].push_back({{"text", note.text}, {"warning", note.warning}});
  return json;
}

std::string terminal(const std::vector<Section>& sections, bool wide) {
  std::string text;
  for (const Section& section : sections) text += (text.empty() ? "" : "\n") + section.terminal(wide);
  return text;
}

std::string markdown(const std::vector<Section>& sections, int level) {
  std::string text;
  for (const Section& section : sections) text += section.markdown(level);
  return text;
}

}  // namespace stepladder
