/** Set, to the file's name, while a file is loaded for its topology only. Global, since the file may load a copy of this library of its own. */
export const TOPOLOGY_IS_READ: unique symbol = Symbol.for('tidemark.topology-is-read') as never;
