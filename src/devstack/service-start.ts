import type { Progress } from './kafka-jars.ts';
import type { ProcessIdentity } from './process-identity.ts';

/** A service of ours that can be broken on purpose. Only for those that run locally. */
export interface ServiceControl {
  /** SIGKILL, and waits until the server is gone. */
  kill(): Promise<void>;
  /** Starts it again on the same port and data, after `kill()`. */
  restart(): Promise<void>;
  /** SIGSTOP: it hangs, its connections stay open. */
  pause(): void;
  /** SIGCONT. */
  resume(): void;
}

export interface StartedService {
  readonly address: string;
  readonly port: number;
  /** What was started, for people: name, version, origin. */
  readonly what: string;
  readonly control?: ServiceControl;
}

export interface StartContext {
  /** For the data of this service. */
  readonly directory: string;
  readonly ephemeral: boolean;
  readonly preferredPort: number | undefined;
  readonly onProgress: Progress;
  onProcess(identity: ProcessIdentity): void;
  onContainer(name: string): void;
}
