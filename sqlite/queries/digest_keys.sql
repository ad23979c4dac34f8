SELECT substr(name, 12), value FROM {table meta} WHERE name >= 'digest_key:' AND name < 'digest_key;' ORDER BY name
