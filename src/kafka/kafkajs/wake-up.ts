/** Lets one waiter sleep until something has happened or a time has passed. What happens while nobody waits ends the next wait at once. */
export class WakeUp {
  #pending = false;
  #end: (() => void) | undefined;

  wake(): void {
    if (this.#end === undefined) this.#pending = true;
    else this.#end();
  }

  async wait(ms: number): Promise<void> {
    if (this.#pending) {
      this.#pending = false;
      return;
    }
    await new Promise<void>((resolve) => {
      const timer = setTimeout(() => this.#end?.(), ms);
      this.#end = () => {
        clearTimeout(timer);
        this.#end = undefined;
        resolve();
      };
    });
  }
}
